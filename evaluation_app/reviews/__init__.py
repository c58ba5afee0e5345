"""What people say of answers, and how far the judge agrees."""
