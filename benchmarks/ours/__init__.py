"""What data_fetcher_core does in each workload, through its public interface."""
