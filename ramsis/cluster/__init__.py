"""What serves: service times, variants, worker types, stations, and how requests reach them."""
