"""What a file must satisfy before anything builds a graph from it, checked on the protobuf."""
