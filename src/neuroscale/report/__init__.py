"""Reports of one verdict: Markdown for a pull request, JSON, JUnit, workflow annotations, and the terminal."""
