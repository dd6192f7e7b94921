"""What commands print: tables, live display, progress, records, diagrams."""
