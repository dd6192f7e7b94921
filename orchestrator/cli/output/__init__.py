"""What commands print: tables, progress, records, diagrams."""
