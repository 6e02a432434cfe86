-- Forgets keys, so that their requests may be added again.
-- INCLUDE: begin writes seen
-- REST: hashes of keys
-- RETURNS: nothing of interest

for hash in take do remove('HDEL', bucket_of(hash), {field_of(hash)}) end
write(true)
return 0
