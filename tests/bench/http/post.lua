-- post.lua is a script for wrk. Every request posts the file that $BODY names: JSON, or binary tensors after $HEAD bytes
-- of JSON. The result is one line with the number of requests, the microseconds and the number of errors.
wrk.method = "POST"
local head = os.getenv("HEAD") or ""
wrk.headers["Content-Type"] = head == "" and "application/json" or "application/octet-stream"
if head ~= "" then
  wrk.headers["Inference-Header-Content-Length"] = head
end
local file = assert(io.open(os.getenv("BODY"), "rb"))
wrk.body = file:read("*a")
file:close()

function done(summary)
  local e = summary.errors
  io.write(string.format("result %d %d %d\n", summary.requests, summary.duration,
    e.connect + e.read + e.write + e.status + e.timeout))
end
