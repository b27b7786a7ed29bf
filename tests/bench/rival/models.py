"""The models of tests/bench/trainer/models.cc in Python."""
import torch
from torch import nn
from torch.nn import functional


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(1024, 2048), nn.Linear(2048, 2048)
        self.fc3, self.fc4 = nn.Linear(2048, 1024), nn.Linear(1024, 10)

    def forward(self, x):
        x = torch.relu(self.fc2(torch.relu(self.fc1(x))))
        return self.fc4(torch.relu(self.fc3(x)))


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 64, 3, padding=1)
        self.fc1, self.fc2 = nn.Linear(64 * 8 * 8, 256), nn.Linear(256, 10)

    def forward(self, x):
        x = functional.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(torch.relu(self.conv2(x)), 2)
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


def conv(inputs, outputs, kernel, stride):
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)


class ResnetLike(nn.Module):
    """The ResNetModel of the guide "Multi-GPU Distributed Training"."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = conv(3, 64, 7, 2), nn.BatchNorm2d(64)
        self.relu, self.maxpool = nn.ReLU(inplace=True), nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1, self.layer2, self.layer3 = self.layer(64, 64, 1), self.layer(64, 128, 2), self.layer(128, 256, 2)
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(256, 10)

    @staticmethod
    def layer(inputs, outputs, stride):
        return nn.Sequential(conv(inputs, outputs, 3, stride), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
                             conv(outputs, outputs, 3, 1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1, self.bn1 = conv(inputs, outputs, 3, stride), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = conv(outputs, outputs, 3, 1), nn.BatchNorm2d(outputs)
        self.shortcut = None
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (x if self.shortcut is None else self.shortcut(x)))


class Resnet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = conv(3, 64, 3, 1), nn.BatchNorm2d(64)
        blocks, inputs = [], 64
        for width in (64, 128, 256, 512):
            blocks += [BasicBlock(inputs, width, 1 if width == 64 else 2), BasicBlock(width, width, 1)]
            inputs = width
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(512, 10)

    def forward(self, x):
        x = self.blocks(torch.relu(self.bn1(self.conv1(x))))
        return self.fc(functional.adaptive_avg_pool2d(x, 1).flatten(1))


def small():
    return nn.Sequential(*(nn.Linear(64, 64) for _ in range(32)))


# Name -> (model, shape of one sample, outputs)
MODELS = {
    "small": (small, (64,), 64),
    "mlp": (Mlp, (1024,), 10),
    "cnn": (Cnn, (3, 32, 32), 10),
    "resnet_like": (ResnetLike, (3, 32, 32), 10),
    "resnet": (Resnet, (3, 32, 32), 10),
}
