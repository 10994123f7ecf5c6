"""Suite ``mapping``: the time to find the triplets, figure by figure of the papers."""
