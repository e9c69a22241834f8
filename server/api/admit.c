/* admit.c - holds the work of a request against the limits of one request. */
#include "api/call/generated.h"
#include "api/reply.h"

#include <stdio.h>

bool api_admit(struct api_request *request, struct api_work *work, size_t bytes, const char *hint) {
    const double cost = work->job.cost + request->generated.cost;
    const double most = request->state->max_work;
    char detail[256];
    if (!account_charge(&request->account, bytes)) {
        reply_too_large(request, NULL, hint);
        return false;
    }
    if (cost > most) {
        snprintf(detail, sizeof detail,
                 "the request needs %.3g multiply-adds; this server allows %.15g, a limit that its "
                 "operator sets with --max-work",
                 cost, most);
        reply_problem(request, 413, detail);
        request->response->refused = "over --max-work";
        return false;
    }
    return true;
}
