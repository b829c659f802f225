"""`make interop`: clients of others call `accord serve`, our client calls their servers; a page says how it went."""
