"""What the measurements say: percentiles, variation, common windows, summaries, doubts and the verdict. All pure."""
