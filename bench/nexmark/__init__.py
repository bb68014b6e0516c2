"""Nexmark: an auction house's people, auctions and bids, and the benchmark's queries over them."""
