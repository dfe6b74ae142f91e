"""The parts of compare_peers.py."""
