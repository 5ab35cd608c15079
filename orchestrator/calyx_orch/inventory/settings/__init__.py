"""What can be set in an inventory: of whom (`guests`), what is measured (`workloads`), and how (`conduct`); `schema` is the whole."""
