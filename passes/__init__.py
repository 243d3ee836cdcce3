"""One graph rewrite a file; a new file here is a new pass at once."""
