//! The report as one page that needs nothing else: tables and plots.
