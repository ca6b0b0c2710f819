"""Administration API: traces, sessions, script runs, approvals, events and diagnostics."""
