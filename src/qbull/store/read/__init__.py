"""The read side: nothing in here changes a job."""
