"""Running error analysis of torch's operators: how far a right result may be from the reference's."""
