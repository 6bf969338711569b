"""Gather boxes from decoded chunks.

==========  =======================================================================================
`boxes`     boxes of any kind, from the cache: point by point, or piece by piece
`uncached`  boxes of whole chunks of an array that outgrows the cache: decoded into the output
==========  =======================================================================================
"""
