"""The numerical oracle: right answers, the error allowed in each element, and inputs to judge on."""
