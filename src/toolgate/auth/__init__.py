"""Who a client is: by a key of ours, or by a token of an issuer that the operator trusts; and who we are to servers."""
