"""Where tables lie and how they are written: lake and catalog, Delta logs, commits, leases, ranges."""
