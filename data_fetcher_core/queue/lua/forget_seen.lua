-- Forgets keys, so that their requests may be added again.
-- INCLUDE: begin writes seen
-- REST: hashes of keys
-- RETURNS: 0

for hash in take do
  local bucket, field = bucket_of(hash), field_of(hash)
  if redis.call('HEXISTS', bucket, field) == 1 then remove('HDEL', bucket, {field}) end
end
write(true)
return 0
