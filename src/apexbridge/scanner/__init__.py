"""What looks dangerous in a skill: rules give findings. Advice, never a guarantee."""
