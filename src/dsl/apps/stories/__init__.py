"""Stories drawn from a teacher whose exact probabilities are known."""
