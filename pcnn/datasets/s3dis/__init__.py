"""S3DIS: six areas of rooms."""

from pcnn.datasets.s3dis.rooms import S3DISRooms, S3DISSets, S3DISTypeSets

__all__ = ["S3DISRooms", "S3DISSets", "S3DISTypeSets"]
