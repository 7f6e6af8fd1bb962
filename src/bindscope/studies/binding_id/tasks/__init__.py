"""Scenes, texts, images and questions of the study."""
