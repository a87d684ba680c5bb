"""DSL inside other libraries; each needs its extra."""
