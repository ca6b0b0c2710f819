"""How the retriever that ships with us is made: from data files to weights, one command a step."""
