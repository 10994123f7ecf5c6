"""Networks made ready to run: what their layers do, and what is quickest for them."""
