"""Writes the Parquet files that tests/suite/parquet.rs expects, into the current folder."""
import pyarrow as pa
import pyarrow.parquet as pq

x=[[[1.0,2.0],[3.0,4.0],[5.0,6.0]],[[-1.0,0.5],[7.0,8.0]],[[0.25,0.0],[9.0,1.0],[2.0,2.0],[4.0,-4.0]]]
pq.write_table(pa.table({'x':pa.array(x,pa.list_(pa.list_(pa.float64()))),'y':[0.5,-1.5,2.5],'weight':[1.0,2.0,0.0]}),'sets.parquet',compression='snappy',row_group_size=2)
pq.write_table(pa.table({'x':pa.array([[[1.0],[2.0],[3.0]],[[4.0],[5.0],[6.0]]],pa.list_(pa.list_(pa.float32()))),'y':pa.array([[1.0,2.0],[3.0,4.0]]),'mask':pa.array([[True,False],[True,True]])}),'sets_mask.parquet',compression='zstd')
pq.write_table(pa.table({'x':pa.array([[[1.0],[2.0]],None],pa.list_(pa.list_(pa.float64()))),'y':[0.5,1.5]}),'bad_null.parquet')
pq.write_table(pa.table({'x':[[1.0,2.0],[3.0,4.0]],'y':[0.5,1.5]}),'bad_flat.parquet')
pq.write_table(pa.table({'x':pa.array([[[1.0,2.0],[3.0]]],pa.list_(pa.list_(pa.float64()))),'y':[0.5]}),'bad_ragged.parquet')
