-- post.lua, for wrk: every request posts the file that $BODY names; the result is one line of
-- requests, microseconds, errors.
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
local file = assert(io.open(os.getenv("BODY"), "rb"))
wrk.body = file:read("*a")
file:close()

function done(summary)
  local e = summary.errors
  io.write(string.format("result %d %d %d\n", summary.requests, summary.duration,
    e.connect + e.read + e.write + e.status + e.timeout))
end
