"""Code that calls tools, kept apart from everything else. (A stub: the map is made with the other parts.)"""
