"""The parts of the csv-report script: reading, typing, grouping, drawing and wording."""
