"""What the world hears of the work: nothing in here changes a job."""
