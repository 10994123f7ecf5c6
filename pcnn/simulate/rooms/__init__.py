"""Simulated furnished rooms: RGB-D fragments in the formats of 3DMatch, rooms in those of S3DIS.

Rooms of the 11 types of S3DIS are built from walls with doors and windows, columns, beams,
furniture and clutter, all labelled with its 13 classes. For fragments a hand-held depth camera with
noise, quantisation, shadows and holes is carried through them and fifty frames are fused; for rooms
a scanner on a tripod sees colour from several places.
"""
