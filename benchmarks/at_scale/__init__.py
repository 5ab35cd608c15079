"""What the benchmarks of many guests share: servers, controllers that are measured from outside, peers, clocks that are known."""
