"""Cluttered scenes: textured shapes that hide one another, on stuff."""
