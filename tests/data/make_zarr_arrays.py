#!/usr/bin/env python3
"""Writes zarr/: the same numbers as zarr-python stores them in many ways.

Element [i, j, k] of each array is 100 i + 10 j + k (bool: whether that is even), of shape [3, 4, 5].
Needs zarr 3.1 and numcodecs. Run: python3 tests/data/make_zarr_arrays.py
"""
import pathlib
import shutil

import numpy
import zarr
from numcodecs import Blosc, GZip, Zlib, Zstd
from zarr.codecs import (BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, TransposeCodec, ZstdCodec)

HERE = pathlib.Path(__file__).parent / "zarr"
i, j, k = numpy.indices((3, 4, 5))
VALUES = 100 * i + 10 * j + k
CHUNKS = (2, 2, 5)


def write(name, values, **options):
    options = {"chunks": CHUNKS, **options}
    array = zarr.create_array(store=str(HERE / name), shape=values.shape, dtype=values.dtype,
                              config={"write_empty_chunks": True}, **options)
    array[...] = values


def version_2(name, dtype="<i4", values=VALUES, **options):
    write(name, values.astype(dtype), zarr_format=2, **options)


def version_3(name, dtype="int32", values=VALUES, **options):
    write(name, values.astype(dtype), zarr_format=3, **options)


shutil.rmtree(HERE, ignore_errors=True)
# Julia's Zarr.jl writes its arrays, which are column-major, with the axes in the opposite order, in order C.
version_2("v2_julia", values=VALUES.transpose(), chunks=(5, 2, 2), compressors=Blosc("lz4", clevel=9, shuffle=Blosc.BITSHUFFLE))
version_2("v2_blosc_f", order="F", compressors=Blosc("lz4"))
version_2("v2_zstd", dtype="<f8", compressors=Zstd(3))
version_2("v2_zlib", dtype="<u2", compressors=Zlib(5))
version_2("v2_gzip", dtype="<i8", compressors=GZip(5))
version_2("v2_plain_big", dtype=">f4", compressors=None)
version_2("v2_nested", dtype="|i1", values=VALUES % 100, compressors=Blosc("zstd"),
          chunk_key_encoding={"name": "v2", "separator": "/"})
version_3("v3_default")
version_3("v3_blosc", dtype="float32", compressors=BloscCodec(cname="zstd", shuffle="shuffle", typesize=4))
version_3("v3_gzip_crc", dtype="float64", compressors=[GzipCodec(), Crc32cCodec()])
version_3("v3_crc_zstd", dtype="float16", compressors=[Crc32cCodec(), ZstdCodec()])
version_3("v3_transposed_big", dtype="uint64", filters=TransposeCodec(order=(1, 2, 0)), serializer=BytesCodec(endian="big"))
version_3("v3_v2_keys", dtype="int16", chunk_key_encoding={"name": "v2", "separator": "."})
version_3("v3_bool", dtype="bool", values=VALUES % 2 == 0)
version_3("v3_sharded", dtype="int32", chunks=(1, 2, 5), shards=(2, 4, 5))
version_3("v3_sharded_start", dtype="uint8", values=VALUES % 256, chunks=(2, 2, 5),
          serializer=ShardingCodec(chunk_shape=(1, 1, 5), codecs=[BytesCodec(), BloscCodec(typesize=1)], index_location="start"),
          compressors=None)

# Only the first chunk is written: the others are the fill value, by zarr-python's default not stored.
for name, version in (("v2_sparse", 2), ("v3_sparse", 3), ("v3_sharded_sparse", 3)):
    sharded = {"chunks": (1, 2, 5), "shards": (2, 4, 5)} if "sharded" in name else {"chunks": CHUNKS}
    array = zarr.create_array(store=str(HERE / name), shape=VALUES.shape, dtype="float32", fill_value=-7.5, zarr_format=version,
                              **sharded)
    array[:1, :2, :] = VALUES[:1, :2, :]

group = zarr.create_group(store=str(HERE / "v3_group"))
group.create_array("numbers", data=numpy.arange(3.0))
group.create_array("more", data=numpy.arange(2))
