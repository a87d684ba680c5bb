"""How doubtful text is written: plain, with confidences in braces, word lists, hOCR and TSV."""
