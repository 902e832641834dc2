"""What engines keep their KV ledger in."""
