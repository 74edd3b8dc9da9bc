"""Which reducer has which bucket, who helps whom, and how many processes there should be."""
