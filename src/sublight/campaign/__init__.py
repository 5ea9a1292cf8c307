"""A campaign: a folder of records and notes, and what they say together."""
