"""The papers' figures and tables: which of them can be shown here, what each claims, and ours."""
