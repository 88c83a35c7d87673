module hello

go 1.24
