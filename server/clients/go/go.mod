// A fork that publishes this folder writes its own address here, such as github.com/NAME/attentiond/server/clients/go.
module attentiond.example/attentiond

go 1.18
