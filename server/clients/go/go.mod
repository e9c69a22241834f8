module attentiond

go 1.18
