/*
 * echo.c THREADS FILE does the least that libmicrohttpd can do with a request like those of the
 * daemon: it reads the body and answers with the bytes of FILE. It uses libmicrohttpd in the same
 * mode and with as many threads as server/http/server.c, but without the checks, headers and
 * deadlines of the daemon. So the time that the daemon takes beyond this is the daemon's own. The
 * first line of its output ends with the URL, as that of the daemon does. A signal ends it.
 */
#include <arpa/inet.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    MAX_ANSWER = 1 << 24 /* bytes */
};

struct answer {
    char *bytes;
    size_t size;
};

static enum MHD_Result on_request(void *answer_, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *bytes,
                                  size_t *size, void **closure) {
    static char begun;
    const struct answer *answer = answer_;
    (void)url, (void)method, (void)version, (void)bytes;
    if (*closure == NULL || *size > 0) {
        *closure = &begun; /* a response in the first step would end the connection */
        *size = 0;
        return MHD_YES;
    }
    struct MHD_Response *response =
        MHD_create_response_from_buffer(answer->size, answer->bytes, MHD_RESPMEM_PERSISTENT);
    MHD_add_response_header(response, "Content-Type", "application/json");
    const enum MHD_Result result = MHD_queue_response(connection, 200, response);
    MHD_destroy_response(response);
    return result;
}

static struct answer read_answer(const char *path) {
    struct answer answer = {.bytes = malloc(MAX_ANSWER)};
    FILE *file = fopen(path, "rb");
    if (file == NULL || answer.bytes == NULL) {
        perror(path);
        exit(1);
    }
    answer.size = fread(answer.bytes, 1, MAX_ANSWER, file);
    fclose(file);
    return answer;
}

int main(int argc, char *argv[]) {
    if (argc != 3) {
        fprintf(stderr, "usage: echo THREADS FILE\n");
        return 2;
    }
    struct answer answer = read_answer(argv[2]);
    const unsigned threads = (unsigned)strtoul(argv[1], NULL, 10);
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct MHD_Daemon *daemon = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC | MHD_USE_ERROR_LOG,
        0, NULL, NULL, on_request, &answer, MHD_OPTION_SOCK_ADDR, &address,
        threads > 1 ? MHD_OPTION_THREAD_POOL_SIZE : MHD_OPTION_END, threads, MHD_OPTION_END);
    if (daemon == NULL) {
        fprintf(stderr, "echo: libmicrohttpd does not start\n");
        return 1;
    }
    printf("echo listening on http://127.0.0.1:%u\n",
           (unsigned)MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT)->port);
    fflush(stdout);
    pause();
    return 0;
}
