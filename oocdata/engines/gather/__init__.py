"""Gather boxes from decoded chunks, in the way that `Chunked.read` chooses.

============  =====================================================================================
`rows`        boxes that are single positions (or few) along the outer axes, and equal on the inner
              ones: one `numpy.take` for each column of chunks, however many chunks and boxes
`pieces`      one copy for each chunk that each box covers, as of patches and long windows
`items`       number by number, where such pieces are many and small
`uncached`    boxes of whole chunks of an array that outgrows the cache: decoded into the output
============  =====================================================================================
"""
