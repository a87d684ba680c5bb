"""Numbers about models and samples, each with its error and its protocol."""
