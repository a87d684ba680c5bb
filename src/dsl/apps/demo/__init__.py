"""The demonstration: what `dsl demo` computes, and the page it writes."""
